package remote

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
)

const (
	// writeBufferBytes is what one connection sends at a time. Bodies are
	// megabytes; the default of 4 KiB would be a system call each. Received
	// bytes go past the small buffer for it, straight into the block.
	writeBufferBytes = 256 << 10
	dialTimeout      = 3 * time.Second
	// continueAbove is the body size from which a put asks before it sends:
	// an object that is already there is then refused without its bytes.
	continueAbove = 256 << 10
)

// newClient makes a client of the store. It reads files and variables and
// may ask the machine's role for credentials, so it is not for constructors.
// AWS_CA_BUNDLE names a file of further certificate authorities.
func newClient(ctx context.Context, o Options) (*client, error) {
	env, _ := config.NewEnvConfig() // an error comes once more below
	if err := finite(
		config.DefaultSharedConfigFilename(), config.DefaultSharedCredentialsFilename(),
		env.SharedConfigFile, env.SharedCredentialsFile, env.WebIdentityTokenFilePath, env.CustomCABundle,
	); err != nil {
		return nil, &Error{Op: "connect", Err: err}
	}
	buildable := awshttp.NewBuildableClient().
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 2*o.Concurrency
			t.WriteBufferSize = writeBufferBytes
			t.MaxResponseHeaderBytes = maxHeaderBytes
			t.DisableCompression = true
			t.ForceAttemptHTTP2 = false // one connection per body: no shared flow control
		}).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(o.Region),
		config.WithSharedConfigProfile(o.Profile),
		config.WithHTTPClient(buildable),
		config.WithAPIOptions([]func(*middleware.Stack) error{bounded}),
		config.WithLogger(logging.Nop{}),                                   // it would write to stderr, in words that are not ours
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // ours has a budget
	)
	if err != nil {
		return nil, &Error{Op: "connect", Err: errConfig} // err may quote the files
	}
	if err := finite(tokens(&cfg)...); err != nil {
		return nil, &Error{Op: "connect", Err: err}
	}
	if cfg.Credentials == nil {
		return nil, &Error{Op: "connect", Err: errCredentials}
	}
	cfg.Credentials = discreet{cfg.Credentials}
	if b, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // with the authorities of AWS_CA_BUNDLE
		buildable = b
	}
	c := new(client)
	for d := range c.api {
		c.connections[d] = &http.Client{Transport: buildable.GetTransport(), CheckRedirect: stay}
		if o.transport != nil {
			c.connections[d].Transport = o.transport
		}
		cfg.HTTPClient = c.connections[d]
		c.api[d] = newAPI(cfg, o)
	}
	return c, nil
}

// finite is an error where the SDK would wait for a file, or read one without an end.
func finite(files ...string) error {
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && path != os.DevNull {
			return fmt.Errorf("%w: %s is no regular file", errConfig, path)
		}
	}
	return nil
}

// tokens are the files of web identities of a profile, and of those behind it.
func tokens(cfg *aws.Config) (all []string) {
	for _, source := range cfg.ConfigSources {
		if shared, is := source.(config.SharedConfig); is {
			for p := &shared; p != nil; p = p.Source {
				all = append(all, p.WebIdentityTokenFile)
			}
		}
	}
	return all
}

// newAPI makes the SDK's client.
func newAPI(cfg aws.Config, o Options) *s3.Client {
	return s3.NewFromConfig(cfg, func(so *s3.Options) {
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
		so.UsePathStyle = o.PathStyle
		so.ContinueHeaderThresholdBytes = continueAbove
		// Payloads carry a checksum of ours, compared at every read. The SDK's
		// would go over each of them a second and a third time.
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
}

// client is a client of the store: one for each direction, with connections of
// its own. How fast the store may send over a connection, its TCP learns from
// the traffic before. Answers to puts are short: over connections that
// had carried puts too, gets were a third slower (1 MiB, BBR, one machine).
type client struct {
	api         [directions]*s3.Client
	connections [directions]*http.Client
}

func (c *client) closeIdle() {
	for _, h := range c.connections {
		h.CloseIdleConnections()
	}
}

// stay follows no redirect: it would carry a signature that is not for it.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// discreet provides credentials, and says nothing about why there are none.
type discreet struct{ aws.CredentialsProvider }

func (d discreet) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := d.CredentialsProvider.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		err = errCredentials
	}
	return c, err
}

// unsigned leaves the body out of the signature, for the same reason.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}
