package remote

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The most that is taken of an answer: of its header, of an error, of anything else
// but the payload of a get. A list of 1000 names has some hundred KiB; the SDK takes 30 times
// the bytes of elements that lie deep in each other.
const (
	maxHeaderBytes = 64 << 10
	maxErrorBytes  = 64 << 10
	maxAnswerBytes = 2 << 20
)

var errTooLong = errors.New("the answer is longer than any of a store")

// bounded bounds the answers to all requests of the SDK. It is middleware because
// the SDK makes clients of its own for credentials, and these read answers whole too.
func bounded(stack *middleware.Stack) error {
	bound := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, about, err := next.HandleDeserialize(ctx, in)
		resp, ok := out.RawResponse.(*smithyhttp.Response)
		switch {
		case !ok || resp.Body == nil:
		case resp.StatusCode != http.StatusOK:
			resp.Body = &boundedBody{resp.Body, maxErrorBytes}
		case stack.ID() != "GetObject":
			resp.Body = &boundedBody{resp.Body, maxAnswerBytes}
		}
		return out, about, err
	}
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("bounded", bound), middleware.After)
}

// boundedBody fails once more than left bytes would be read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
