package httpd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Decode reads a request, which is one JSON object without any name that the call
// does not know. No body is an empty object.
func Decode(request []byte, q any) error {
	switch string(bytes.TrimSpace(request)) {
	case "":
		return nil
	case "null": // which Decode takes for any type
		return errors.New("the request is no JSON object but null")
	}
	d := json.NewDecoder(bytes.NewReader(request))
	d.DisallowUnknownFields()
	var (
		wrong  *json.UnmarshalTypeError
		syntax *json.SyntaxError
	)
	switch err := d.Decode(q); {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("the request is no JSON object but a %s", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%q does not take a %s", wrong.Field, wrong.Value)
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the request is no JSON: %w", err)
	case err != nil: // a name that is not known; it has no type of its own
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// Reply writes a reply as JSON. A client that does not read it is waited for no
// longer than any other.
func Reply(w http.ResponseWriter, status int, reply any) {
	body, err := json.Marshal(reply)
	if err != nil { // of plain data
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","error":"the reply is no JSON","do":"report it"}`)
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(ReplyTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(slices.Concat(body, []byte("\n"))) // a client that has left is told nothing
	_ = out.Flush()
}
