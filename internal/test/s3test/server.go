package s3test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// The bucket of a Server, its region and its credentials.
const (
	Bucket    = "chunks"
	Region    = "us-east-1"
	AccessKey = "kvstored-test-access"
	SecretKey = "kvstored-test-secret-that-must-not-show"
)

// GatewayVariable names the variable of the environment with the path of a
// versitygw program. Where it is set [Run] starts that instead of the server in
// this process.
const GatewayVariable = "S3TEST_GATEWAY"

// Server is a running S3 server with one empty bucket, either in this process or
// a real one.
type Server struct {
	Endpoint string // its URL
	// Objects returns the names of the stored objects and their sizes in bytes.
	Objects func() (map[string]int64, error)
	// Stop ends the server.
	Stop func()
}

// Run starts a server for one test and puts its credentials into the
// environment. The test must not be parallel.
func Run(t testing.TB) *Server {
	t.Helper()
	Credentials(t)
	s := inProcess()
	if program := os.Getenv(GatewayVariable); program != "" {
		var err error
		if s, err = startGateway(program, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

// inProcess starts a server over a bucket in memory that checks signatures.
func inProcess() *Server {
	store := newObjects()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := checkSignature(r); f != nil {
			send(w, f.response(r.Header.Get("Authorization"))) //nolint:bodyclose // send does
			return
		}
		resp, err := store.RoundTrip(r)
		if err != nil {
			breakOff(w)
			return
		}
		send(w, resp)
	}))
	return &Server{
		Endpoint: server.URL,
		Objects:  func() (map[string]int64, error) { return store.sizes(), nil },
		Stop: func() {
			server.CloseClientConnections()
			server.Close()
		},
	}
}

// Credentials puts those of a Server into the environment of one test, and
// nothing of this machine's.
func Credentials(t testing.TB) {
	t.Helper()
	nowhere := filepath.Join(t.TempDir(), "nothing")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "", "AWS_ENDPOINT_URL_STS": "",
	} {
		t.Setenv(name, value)
	}
}
