// Package unseen tests that the runtime's monitor stays asleep behind calls that it does
// not see, with another process that ends the sleep of this one.
//
// It needs Linux, and no race detector.
package unseen
