package route

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/pick"
	"github.com/kvstored/kvstored/router/reach"
)

// Errors of calls, besides those of the packages below.
var (
	ErrRequest  = errors.New("wrong request")
	ErrDenied   = errors.New("not allowed")
	ErrModel    = errors.New("unknown model")
	ErrTaken    = errors.New("endpoint is another worker's")
	ErrNoWorker = errors.New("no worker")
	ErrNoPost   = errors.New("events of the worker do not come by post")
	ErrGap      = errors.New("batches before this one are missing")
	ErrRestart  = errors.New("another batch has this number")
	ErrBusy     = errors.New("too much at once")
	ErrTooLarge = errors.New("request is too large")
	ErrCall     = errors.New("unknown call")
	ErrMethod   = errors.New("wrong method")
)

// codes are the stable names of errors and their HTTP status. The first that fits
// counts.
var codes = []struct {
	err    error
	code   string
	status int
}{
	{ErrDenied, "denied", http.StatusForbidden},
	{ErrCall, "unknown_call", http.StatusNotFound},
	{ErrMethod, "wrong_method", http.StatusMethodNotAllowed},
	{ErrTooLarge, "too_large", http.StatusRequestEntityTooLarge},
	{ErrBusy, "busy", http.StatusServiceUnavailable},
	{ErrModel, "unknown_model", http.StatusNotFound},
	{reach.ErrNotAllowed, "endpoint_not_allowed", http.StatusForbidden},
	{reach.ErrEndpoint, "bad_endpoint", http.StatusBadRequest},
	{ErrTaken, "endpoint_taken", http.StatusConflict},
	{ErrNoWorker, "no_worker", http.StatusServiceUnavailable},
	{ErrNoPost, "not_posted", http.StatusConflict},
	{ErrGap, "gap", http.StatusConflict},
	{ErrRestart, "restart", http.StatusConflict},
	{feed.ErrIgnore, "ignored", http.StatusTooManyRequests},
	{feed.ErrFlood, "flood", http.StatusTooManyRequests},
	{feed.ErrRank, "wrong_rank", http.StatusBadRequest},
	{feed.ErrSpace, "wrong_space", http.StatusBadRequest},
	{feed.ErrGroup, "wrong_group", http.StatusBadRequest},
	{index.ErrUnknownWorker, "unknown_worker", http.StatusNotFound},
	{index.ErrWorkerExists, "worker_exists", http.StatusConflict},
	{index.ErrTooManyWorkers, "too_many_workers", http.StatusInsufficientStorage},
	{index.ErrWorkerName, "worker_name", http.StatusBadRequest},
	{index.ErrBlockTokens, "block_tokens", http.StatusBadRequest},
	{event.ErrBlockTokens, "block_tokens", http.StatusBadRequest},
	{event.ErrTooManyHashes, "too_many_hashes", http.StatusRequestEntityTooLarge},
	{event.ErrTooManyEvents, "too_many_events", http.StatusRequestEntityTooLarge},
	{event.ErrTooLarge, "too_large", http.StatusRequestEntityTooLarge},
	{event.ErrSyntax, "bad_batch", http.StatusBadRequest},
	{event.ErrCount, "bad_batch", http.StatusBadRequest},
	{event.ErrNoKind, "bad_batch", http.StatusBadRequest},
	{index.ErrTooManyShards, "too_many_shards", http.StatusInsufficientStorage},
	{pick.ErrReservation, "unknown_reservation", http.StatusNotFound},
	{pick.ErrTooMany, "too_many_reservations", http.StatusTooManyRequests},
	{pick.ErrSpeed, "wrong_speed", http.StatusBadRequest},
	{ErrRequest, "bad_request", http.StatusBadRequest},
	{index.ErrOption, "bad_request", http.StatusBadRequest},
}

// codeOf is what an error is called outside.
func codeOf(err error) (code string, status int) {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code, c.status
		}
	}
	return "internal", http.StatusInternalServerError
}

// refuse is an error of the caller's request.
func refuse(err error, format string, args ...any) error {
	return fmt.Errorf("%w: %w", err, fmt.Errorf(format, args...))
}
