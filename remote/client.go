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
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/kvstored/kvstored/tier"
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

// A store that does not answer, or not to us, is asked again after
// connectPause, then after twice as long, up to connectPauseMax.
const (
	connectPause    = time.Second
	connectPauseMax = 30 * time.Second
)

// Run connects, trying until it succeeds, and then reads the names of all
// objects if Options.List says so, and credentials where Reload asks for that. It
// returns when ctx ends.
func (t *Tier) Run(ctx context.Context) error {
	defer func() { t.removeCanary(ctx, t.client.Load()) }()
	list := t.o.List
	for {
		if err := t.connect(ctx); err != nil {
			return err
		}
		if list {
			t.loadAll(ctx)
			list = false
		}
		err := t.watch(ctx)
		if ctx.Err() != nil {
			return err
		}
		t.log.Error().Err(err).Msg("the store is of no use any more; the daemon serves without it until it is")
		t.why.Store(&err)
		t.client.Swap(nil).closeIdle()
	}
}

// loadAll reads the names of all objects, for Find.
func (t *Tier) loadAll(ctx context.Context) {
	n, err := t.loadNames(ctx)
	if err != nil && ctx.Err() == nil {
		t.log.Warn().Err(err).Msg("the objects could not be listed to the end; what is there is found all the same, in more requests")
	}
	t.log.Info().Int("objects", n).Msg("remote tier listed")
}

// connect tries until Connect succeeds.
func (t *Tier) connect(ctx context.Context) error {
	for pause := connectPause; ; pause = min(2*pause, connectPauseMax) {
		err := t.Connect(ctx)
		if err == nil {
			t.log.Info().Str("bucket", t.o.Bucket).Bool("read_only", t.readOnly.Load()).Msg("remote tier ready")
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.log.Error().Err(err).Stringer("again_in", pause).Msg("the remote tier cannot be used; the daemon serves without it")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-t.login.asked:
		}
	}
}

// Connect makes the client, asks the store for an object that is not there, and
// tries whether it keeps one. A client that there was stays until that is over.
func (t *Tier) Connect(ctx context.Context) error {
	if t.closed.Load() {
		return &Error{Op: "connect", Err: tier.ErrClosed}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, errTimeout)
	defer cancel()
	c, err := newClient(ctx, t.o)
	if err == nil {
		err = t.try(ctx, c)
	}
	if err != nil {
		t.why.Store(&err)
		t.count.connectFailed.Add(1)
		if c != nil {
			c.closeIdle()
		}
		return err
	}
	if old := t.client.Swap(c); old != nil {
		old.closeIdle()
	}
	t.login.proved(time.Now())
	return nil
}

// try is an error unless the store says of an object that is not there just that, which
// it does where bucket and credentials are right, and gives back an object as it was put.
func (t *Tier) try(ctx context.Context, c *client) error {
	t.count.gets.Add(1)
	out, err := c.api[reads].GetObject(ctx, &s3.GetObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.root + "nothing")})
	if err == nil {
		out.Body.Close()
		return &Error{Op: "connect", Err: errAnyName}
	}
	if err = t.judge(ctx, "connect", err); !isNotFound(err) {
		return err
	}
	return t.canary(ctx, c)
}

// loadNames reads the names of all objects into the Bloom filter.
func (t *Tier) loadNames(ctx context.Context) (n int, err error) {
	err = t.list(ctx, t.names.root, func(page []types.Object) error {
		for i := range page {
			if k, ok := t.names.key(aws.ToString(page[i].Key)); ok && !t.expired(page[i].LastModified) {
				t.known.add(k)
				n++
			}
		}
		return nil
	})
	return n, err
}

// Check tries everything the tier needs with the canary: put, get, put again, list and
// delete. It returns notes for the operator, what the bucket is good for last.
func (t *Tier) Check(ctx context.Context) (notes []string, err error) {
	if err := t.Connect(ctx); err != nil {
		return nil, err
	}
	if t.readOnly.Load() {
		return []string{fmt.Sprintf("bucket %s is read only: the store answers 403 to puts; what others store is read", t.o.Bucket)}, nil
	}
	name := aws.String(t.canaryName())
	defer func() {
		if derr := t.deleteNames(ctx, []types.ObjectIdentifier{{Key: name}}); err == nil {
			err = derr
		}
	}()
	again := t.request(ctx, kind{op: "put", count: &t.count.puts, direction: writes}, func(ctx context.Context, api *s3.Client) error {
		in := &s3.PutObjectInput{Bucket: &t.o.Bucket, Key: name, IfNoneMatch: aws.String("*")}
		_, err := t.sendObject(ctx, api, in, make([]byte, canaryBytes), t.summed.Load())
		return err
	})
	switch {
	case again == nil:
		notes = []string{"conditional puts are not obeyed: of two machines that store the same chunk both send it"}
	case refusesCondition(again):
		notes = []string{"no conditional puts: each put asks first"}
	case statusOf(again) != http.StatusPreconditionFailed:
		return nil, again
	}
	notes = append(notes, fmt.Sprintf("bucket %s can be read, written, listed and deleted from", t.o.Bucket))
	return notes, t.list(ctx, t.names.root+"canary/", func([]types.Object) error { return nil })
}
