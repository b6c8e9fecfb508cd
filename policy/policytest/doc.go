// Package policytest is the conformance suite of package policy: slow
// reference models, a differential test against them, and bounds on the
// steps that finding victims may take. A new policy adds its model to the
// table in model.go and passes Run.
package policytest
