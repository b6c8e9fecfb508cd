// Package human writes numbers as people read them: counts, sizes, shares and
// times in the daemon's messages, the commands' tables and the reports. It
// keeps no state; scripts get their digits elsewhere.
package human
