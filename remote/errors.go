package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/kvstored/kvstored/tier"
)

// Error is the failure of a request. Its text is made here alone: the store's
// own words, and the SDK's, may repeat parts of the request, and so
// credentials.
type Error struct {
	Op     string // "get", "put", ...
	Status int    // of the answer; 0 = there was none
	Code   string // the store's word for it; "" = none
	Err    error  // a sentinel of tier, of context, or of the network; never the SDK's
}

func (e *Error) Error() string {
	text := "remote: " + e.Op
	if e.Status != 0 {
		text += fmt.Sprintf(": the store answered %d", e.Status)
		if e.Code != "" {
			text += " " + e.Code
		}
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if advice := advice[e.Code]; advice != "" {
		text += " (" + advice + ")"
	}
	return text
}

// Unwrap returns what errors.Is is asked about.
func (e *Error) Unwrap() error { return e.Err }

// advice says what to do about what only the operator can mend.
var advice = map[string]string{
	"NoSuchBucket":                       "check remote.s3.bucket and remote.s3.path_style",
	"AccessDenied":                       "the credentials lack a right; docs/run/bucket.md lists them",
	"InvalidAccessKeyId":                 "the store does not know these credentials",
	"XAdminUserNotFound":                 "the store does not know these credentials", // versitygw, with 404
	"ExpiredToken":                       "the credentials are over; they are read again before the next request",
	"SignatureDoesNotMatch":              "the secret key is wrong, or remote.s3.region is",
	"PermanentRedirect":                  "check remote.s3.region",
	"AuthorizationHeaderMalformed":       "check remote.s3.region",
	"IllegalLocationConstraintException": "check remote.s3.region",
	"RequestTimeTooSkewed":               "the clock of this machine is wrong",
}

// roomError is an Allocator's refusal. It says nothing about the store, which
// did answer, and so is never judged: the error in it is for the caller.
type roomError struct{ err error }

func (e *roomError) Error() string { return "remote: get: memory: " + e.err.Error() }

func (e *roomError) Unwrap() error { return e.err }

// isRoom reports whether err is about memory and not about the store.
func isRoom(err error) bool {
	var r *roomError
	return errors.As(err, &r)
}

// Errors that mean what an operator can mend before any request is made.
var (
	errConfig      = errors.New("the shared configuration cannot be used; check remote.s3.profile and the files and variables it stands in")
	errCredentials = errors.New("no usable credentials in the environment, in the profile or from the machine's role")
	errUntried     = errors.New("the store was not asked yet")
	errTimeout     = errors.New("no answer in time")
	errBroken      = errors.New("the connection broke")
	errCertificate = errors.New("the store's certificate is not valid here; AWS_CA_BUNDLE can name a file with the authority that signed it")
)

// failure makes the error of a request from what the SDK said.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op}
	var re *awshttp.ResponseError
	if errors.As(err, &re) && re.Response != nil {
		e.Status = re.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code = word(api.ErrorCode())
	}
	switch {
	case errors.Is(err, errTooLong):
		e.Err = errTooLong
	case missing(e):
		e.Err = tier.ErrNotFound
	case forbidden(e) && op == "put":
		e.Err = errReadOnly
	case forbidden(e) && op == "delete":
		e.Err = errKeeps
	case e.Status == 0:
		e.Err = transport(err)
	}
	return e
}

// missing reports whether an answer says that the object is not there. Stores
// say 404 too of a bucket, or of whom they do not know, and what stands before
// them of an address. A HEAD has no body, and so no code of the store's.
func missing(e *Error) bool {
	switch e.Code {
	case "NoSuchKey":
		return true
	case "NotFound", "", "UnknownError": // what the SDK makes of no code
		return e.Op == "head" && e.Status == http.StatusNotFound
	}
	return false
}

// forbidden reports whether the store knows the credentials, and refuses all the same.
func forbidden(e *Error) bool {
	return e.Status == http.StatusForbidden && !refusesLogin(e) && e.Code != "RequestTimeTooSkewed"
}

// transport names what went wrong before there was an answer.
func transport(err error) error {
	var opErr *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	if known := isAny(err, context.Canceled, context.DeadlineExceeded, tier.ErrClosed, tier.ErrOff, errCredentials, errTimeout); known != nil {
		return known
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTimeout
	case errors.As(err, &certificate):
		return errCertificate
	case errors.As(err, &dns):
		return errors.New("the host name of the store is not known; check remote.s3.endpoint")
	case isAny(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE) != nil:
		return errBroken
	case errors.As(err, &opErr):
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return fmt.Errorf("the store cannot be reached: %w", errno)
		}
		return errors.New("the store cannot be reached")
	}
	return errBroken
}

// isAny is the first of some errors that err is; nil if it is none of them.
func isAny(err error, some ...error) error {
	for _, e := range some {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// code is how the codes of stores look.
var code = regexp.MustCompile(`^[a-zA-Z0-9]{1,64}$`)

// word keeps a code that looks like one.
func word(s string) string { return code.FindString(s) }

// statusOf is the status of an answer, 0 if there was none.
func statusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// retriable reports whether the same request may succeed a moment later.
func retriable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch {
	case e.Status >= 500 && e.Status != http.StatusNotImplemented, e.Status == http.StatusTooManyRequests, e.Code == "SlowDown", e.Code == "RequestTimeout":
		return true
	case e.Status == http.StatusConflict: // two conditional writes of one object at a time
		return true
	}
	return errors.Is(e.Err, errBroken) || errors.Is(e.Err, errTimeout)
}

// slowDown reports whether the store asks for fewer requests.
func slowDown(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == "SlowDown" || e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests)
}
