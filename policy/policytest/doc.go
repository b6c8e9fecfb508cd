// Package policytest is the conformance suite of package policy. It owns slow
// reference models, a differential test against them, and bounds on the steps
// that finding victims may take. A new policy adds its model to the table in
// model.go and passes Run. No program imports it, only tests.
package policytest
