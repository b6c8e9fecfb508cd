package remote

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// noLogin takes the credentials out of the environment.
func noLogin(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
}

// file writes a file for one test and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEndlessFiles: the SDK would wait for a pipe for ever, and read a device until there is
// no memory.
func TestEndlessFiles(t *testing.T) {
	noLogin(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := []string{pipe, "/dev/zero", t.TempDir()}
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CA_BUNDLE"} {
		t.Run(name, func(t *testing.T) {
			for _, path := range refused {
				t.Setenv(name, path)
				if _, err := newClient(t.Context(), testOptions("http://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
					t.Errorf("%v", err)
				}
			}
			t.Setenv(name, os.DevNull)
			if _, err := newClient(t.Context(), testOptions("http://127.0.0.1:1")); err != nil && strings.Contains(err.Error(), os.DevNull) {
				t.Error(err)
			}
		})
	}
	for _, path := range refused {
		for profile, text := range map[string]string{
			"own":    "[profile own]\nrole_arn = arn:aws:iam::123456789012:role/r\nweb_identity_token_file = " + path + "\n",
			"source": "[profile source]\nrole_arn = arn:aws:iam::123456789012:role/s\nsource_profile = own\n[profile own]\nrole_arn = arn:aws:iam::123456789012:role/r\nweb_identity_token_file = " + path + "\n",
		} {
			t.Setenv("AWS_CONFIG_FILE", file(t, "config", text))
			o := testOptions("http://127.0.0.1:1")
			o.Profile = profile
			if _, err := newClient(t.Context(), o); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
				t.Errorf("profile %s: %v", profile, err)
			}
		}
	}
}

// TestProfile: credentials come from the profile that the options name, and
// from no other.
func TestProfile(t *testing.T) {
	s := s3test.Run(t)
	noLogin(t)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file(t, "credentials", fmt.Sprintf(
		"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong-secret\n[chunks]\naws_access_key_id = %s\naws_secret_access_key = %s\n",
		s3test.AccessKey, s3test.SecretKey)))
	o := testOptions(s.Endpoint)
	o.Profile = "chunks"
	m := memory(t, mib)
	c := tiertest.Chain(1, 1)
	r := connect(t, o)
	put(t, r, m, c, 0, 1, kib)
	if err := get(t, r, m, c.Key(0)); err != nil {
		t.Error(err)
	}
	o.Profile = ""
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Connect(t.Context()); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with the wrong credentials of another profile: %v", err)
	}
}

// TestWebIdentity: a token that the platform has put into a file is exchanged
// for credentials, as pods do it. When that fails nothing of the token is told.
func TestWebIdentity(t *testing.T) {
	const token, role = "web-identity-token-that-must-not-show", "arn:aws:iam::123456789012:role/chunks"
	s := s3test.Run(t)
	noLogin(t)
	var asked, refuse atomic.Int32
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/xml")
		if refuse.Load() > 0 || r.FormValue("WebIdentityToken") != token || r.FormValue("RoleArn") != role {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not with %s</Message></Error></ErrorResponse>", token)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken></SessionToken><Expiration>%s</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			s3test.AccessKey, s3test.SecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(sts.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file(t, "token", token))
	t.Setenv("AWS_ROLE_ARN", role)
	m := memory(t, mib)
	c := tiertest.Chain(1, 1)
	r := connect(t, testOptions(s.Endpoint))
	put(t, r, m, c, 0, 1, kib)
	if err := get(t, r, m, c.Key(0)); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("credentials were asked for %d times; want 1", n)
	}
	refuse.Store(1)
	r, err := New(testOptions(s.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), errCredentials.Error()) || strings.Contains(err.Error(), token) {
		t.Errorf("a token that is refused: %v", err)
	}
}

// rotating is a store that takes one set of credentials, which the test changes, and the
// file that a tier on it reads its own from.
type rotating struct {
	*s3test.Memory
	path  string
	takes atomic.Pointer[string] // the access key
}

const rotatingSecret = "secret-that-must-not-show"

func rotates(t *testing.T, s *s3test.Memory, access string) *rotating {
	t.Helper()
	r := &rotating{Memory: s, path: file(t, "credentials", "")}
	r.write(t, access)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", r.path)
	s.Set(func(q *http.Request) s3test.Fault {
		switch auth := q.Header.Get("Authorization"); {
		case strings.Contains(auth, "Credential="+*r.takes.Load()+"/"):
			return s3test.Fault{}
		case q.Method == http.MethodHead:
			return s3test.Fault{Status: 400}
		}
		return s3test.Fault{Status: 400, Code: "ExpiredToken"}
	})
	r.takes.Store(&access)
	return r
}

// write replaces the credentials in the file.
func (r *rotating) write(t *testing.T, access string) {
	t.Helper()
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", access, rotatingSecret)
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Credentials that the store refuses are read again before the next request, with
// any kind of request, and nothing of them is told.
func TestRotatedCredentials(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		noLogin(t)
		at := rotates(t, s, "first")
		var log logtest.Book
		o := virtualOptions(s)
		o.Log = zerolog.New(&log)
		r := connect(t, o)
		c := tiertest.Chain(1, 2)
		put(t, r, m, c, 0, 1, kib)
		time.Sleep(loginLasts)
		next := "second"
		at.takes.Store(&next)
		ask := func() error { // a request without a word of the store's
			_, err := r.exists(t.Context(), c.Key(0))
			return err
		}
		if err := ask(); err == nil {
			t.Fatal("the old ones are taken")
		}
		for range 2 { // the file has the old ones yet
			if err := get(t, r, m, c.Key(0)); err == nil || !strings.Contains(err.Error(), "ExpiredToken") || strings.Contains(err.Error(), rotatingSecret) {
				t.Fatalf("with the old ones: %v", err)
			}
		}
		at.write(t, next)
		if err := get(t, r, m, c.Key(0)); err != nil {
			t.Errorf("the next request after they were rotated: %v", err)
		}
		put(t, r, m, c, 1, 2, kib)
		if text := log.String(); strings.Contains(text, rotatingSecret) || strings.Contains(text, "second") {
			t.Errorf("the log tells of credentials: %s", text)
		}
	})
}

// At a reload they are read too. A set that is not whole yet, or that the store does not
// take, is not used.
func TestReloadedCredentials(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		noLogin(t)
		at := rotates(t, s, "first")
		r, err := New(virtualOptions(s))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		defer func() {
			stop()
			<-ended
			_ = r.Close()
		}()
		reload := func() {
			r.Reload()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		c := tiertest.Chain(1, 4)
		put(t, r, m, c, 0, 1, kib)
		for _, text := range []string{"", "[default]\naws_access_key_id = second\n"} {
			if err := os.WriteFile(at.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			reload()
			put(t, r, m, c, 1, 2, kib)
		}
		at.write(t, "unknown")
		reload()
		put(t, r, m, c, 2, 3, kib)
		at.write(t, "second")
		next := "second"
		at.takes.Store(&next)
		reload()
		before := s.Count("")
		put(t, r, m, c, 3, 4, kib)
		if n := s.Count("") - before; n != 1 {
			t.Errorf("a put took %d requests; want 1: the credentials are the new ones", n)
		}
	})
}

// TestOwnAuthority: a store with a certificate of an unknown authority is used
// once AWS_CA_BUNDLE names that authority, and not before.
func TestOwnAuthority(t *testing.T) {
	s := s3test.Run(t)
	to, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// The name that was signed goes on to the store.
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
	}})
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.StartTLS()
	t.Cleanup(front.Close)
	o := testOptions(front.URL)
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "AWS_CA_BUNDLE") {
		t.Errorf("a certificate of nobody's: %v", err)
	}
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}))
	t.Setenv("AWS_CA_BUNDLE", file(t, "authority.pem", authority))
	m := memory(t, mib)
	c := tiertest.Chain(1, 1)
	r = connect(t, o)
	put(t, r, m, c, 0, 1, 512*kib)
	if err := get(t, r, m, c.Key(0)); err != nil {
		t.Error(err)
	}
}
