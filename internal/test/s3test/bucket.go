package s3test

import (
	"bytes"
	"crypto/md5" // an ETag is one
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// objects is an S3 bucket in memory. As an http.RoundTripper it answers the
// requests that the remote tier makes, path style, and refuses all others with
// 501. It checks no signature.
type objects struct {
	mu struct {
		sync.Mutex
		byName map[string]object
	}
}

// object is never changed; a put replaces it.
type object struct {
	header   http.Header // X-Amz-Meta-*
	body     []byte
	tag      string // as ETag says it, with quotes
	modified time.Time
}

func newObjects() *objects {
	b := new(objects)
	b.mu.byName = make(map[string]object)
	return b
}

func newObject(header http.Header, body []byte) object {
	sum := md5.Sum(body)
	o := object{header: make(http.Header), body: body, tag: `"` + hex.EncodeToString(sum[:]) + `"`, modified: time.Now()}
	for field, values := range header {
		if strings.HasPrefix(field, metadata) {
			o.header[field] = values
		}
	}
	return o
}

const metadata = "X-Amz-Meta-"

func (b *objects) get(name string) (object, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, there := b.mu.byName[name]
	return o, there
}

// put stores o if condition allows it; the check and the change are one step.
func (b *objects) put(name string, o object, c condition) *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, there := b.mu.byName[name]
	if f := c.allows(old, there); f != nil {
		return f
	}
	b.mu.byName[name] = o
	return nil
}

// names in the order of a listing: by byte.
func (b *objects) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.mu.byName))
}

func (b *objects) sizes() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	sizes := make(map[string]int64, len(b.mu.byName))
	for name, o := range b.mu.byName {
		sizes[name] = int64(len(o.body))
	}
	return sizes
}

// failure is an error answer of S3.
type failure struct {
	status int
	code   string
}

var (
	noSuchBucket    = &failure{http.StatusNotFound, "NoSuchBucket"}
	noSuchKey       = &failure{http.StatusNotFound, "NoSuchKey"}
	notAllowed      = &failure{http.StatusPreconditionFailed, "PreconditionFailed"}
	notImplemented  = &failure{http.StatusNotImplemented, "NotImplemented"}
	invalidRange    = &failure{http.StatusRequestedRangeNotSatisfiable, "InvalidRange"}
	incompleteBody  = &failure{http.StatusBadRequest, "IncompleteBody"}
	malformedXML    = &failure{http.StatusBadRequest, "MalformedXML"}
	invalidRequest  = &failure{http.StatusBadRequest, "InvalidRequest"}
	invalidArgument = &failure{http.StatusBadRequest, "InvalidArgument"}
)

func (f *failure) response(said string) *http.Response {
	return answer(f.status, fmt.Sprintf("<Error><Code>%s</Code><Message>said to %s</Message></Error>", f.code, said))
}

func answer(status int, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/xml"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
}

// condition is what a put demands of the object that is there.
type condition struct{ ifMatch, ifNoneMatch string }

func conditionOf(h http.Header) condition {
	return condition{h.Get("If-Match"), h.Get("If-None-Match")}
}

// allows is S3's rule for conditional writes: If-None-Match takes only *, and
// If-Match an ETag; a put that should match an absent object is a 404.
func (c condition) allows(old object, there bool) *failure {
	switch {
	case c.ifNoneMatch != "" && (c.ifNoneMatch != "*" || c.ifMatch != ""):
		return notImplemented
	case c.ifNoneMatch != "" && there:
		return notAllowed
	case c.ifMatch != "" && !there:
		return noSuchKey
	case c.ifMatch != "" && strings.Trim(c.ifMatch, `"`) != strings.Trim(old.tag, `"`):
		return notAllowed
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (b *objects) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	resp, f := b.answer(r, bucket, name)
	if f != nil {
		resp = f.response(r.Header.Get("Authorization"))
	}
	if r.Method == http.MethodHead {
		resp.Body = http.NoBody
	}
	resp.Request, resp.Proto, resp.ProtoMajor, resp.ProtoMinor = r, "HTTP/1.1", 1, 1
	return resp, nil
}

func (b *objects) answer(r *http.Request, bucket, name string) (*http.Response, *failure) {
	switch {
	case bucket != Bucket:
		return nil, noSuchBucket
	case name == "":
		return b.ofBucket(r)
	}
	return b.ofObject(r, name)
}

func (b *objects) ofBucket(r *http.Request) (*http.Response, *failure) {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		return b.list(q)
	case r.Method == http.MethodPost && q.Has("delete"):
		return b.deleteMany(r)
	case r.Method == http.MethodHead:
		return answer(http.StatusOK, ""), nil
	}
	return nil, notImplemented
}

func (b *objects) ofObject(r *http.Request, name string) (*http.Response, *failure) {
	if q := r.URL.Query(); q.Has("uploads") || q.Has("uploadId") { // parts: the tier never asks
		return nil, notImplemented
	}
	switch r.Method {
	case http.MethodPut:
		return b.putOne(r, name)
	case http.MethodGet, http.MethodHead:
		return b.getOne(r, name)
	case http.MethodDelete:
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.mu.byName, name)
		return answer(http.StatusNoContent, ""), nil
	}
	return nil, notImplemented
}

// putOne refuses a put that waits for 100 Continue without its body, as S3 does.
func (b *objects) putOne(r *http.Request, name string) (*http.Response, *failure) {
	c := conditionOf(r.Header)
	if r.Header.Get("Expect") != "" {
		old, there := b.get(name)
		if f := c.allows(old, there); f != nil {
			return nil, f
		}
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil || r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
			return nil, incompleteBody
		}
	}
	o := newObject(r.Header, body)
	if f := b.put(name, o, c); f != nil {
		return nil, f
	}
	resp := answer(http.StatusOK, "")
	resp.Header.Set("ETag", o.tag)
	return resp, nil
}

// getOne answers GET, of a range too, and HEAD.
func (b *objects) getOne(r *http.Request, name string) (*http.Response, *failure) {
	o, there := b.get(name)
	if !there {
		return nil, noSuchKey
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: o.header.Clone()}
	from, to := 0, len(o.body)
	if asked := r.Header.Get("Range"); asked != "" {
		var ok bool
		if from, to, ok = cut(asked, len(o.body)); !ok {
			return nil, invalidRange
		}
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.body)))
	}
	resp.ContentLength = int64(to - from)
	resp.Header.Set("Accept-Ranges", "bytes")
	resp.Header.Set("Content-Length", strconv.Itoa(to-from))
	resp.Header.Set("ETag", o.tag)
	resp.Header.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	resp.Body = io.NopCloser(bytes.NewReader(o.body[from:to]))
	return resp, nil
}

// cut reads a header Range of one range: bytes=2-5, bytes=2- or bytes=-5. to is
// the byte after the last.
func cut(asked string, size int) (from, to int, ok bool) {
	spec, ok := strings.CutPrefix(asked, "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !ok || !dash {
		return 0, 0, false
	}
	if first == "" { // so many from the end
		n, err := strconv.Atoi(last)
		return max(0, size-n), size, err == nil && n > 0 && size > 0
	}
	from, err := strconv.Atoi(first)
	if err != nil || from >= size {
		return 0, 0, false
	}
	if last == "" {
		return from, size, true
	}
	to, err = strconv.Atoi(last)
	return from, min(to+1, size), err == nil && to >= from
}

// deleteMany answers DeleteObjects. S3 demands a checksum of its body.
func (b *objects) deleteMany(r *http.Request) (*http.Response, *failure) {
	var asked struct {
		Quiet  bool
		Object []struct{ Key string }
	}
	if !slices.ContainsFunc([]string{"Content-Md5", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Crc64nvme"}, func(h string) bool { return r.Header.Get(h) != "" }) {
		return nil, invalidRequest
	}
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Object) == 0 || len(asked.Object) > pageObjects {
		return nil, malformedXML
	}
	type key struct{ Key string }
	var result struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []key
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range asked.Object {
		delete(b.mu.byName, o.Key)
		if !asked.Quiet {
			result.Deleted = append(result.Deleted, key{o.Key})
		}
	}
	return document(&result), nil
}

// pageObjects is how many objects a page of a listing, or a delete, may name.
const pageObjects = 1000

// list answers ListObjectsV2. A continuation token is the last name, in hex.
func (b *objects) list(q url.Values) (*http.Response, *failure) {
	most := pageObjects
	if asked := q.Get("max-keys"); asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil || n < 0 {
			return nil, invalidArgument
		}
		most = min(n, most)
	}
	token, err := hex.DecodeString(q.Get("continuation-token"))
	switch {
	case err != nil:
		return nil, invalidArgument
	case q.Get("delimiter") != "": // the tier never asks
		return nil, notImplemented
	}
	type content struct {
		Key, LastModified, ETag string
		Size                    int
	}
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		KeyCount, MaxKeys     int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
	}
	page.Name, page.Prefix, page.MaxKeys = Bucket, q.Get("prefix"), most
	after := max(q.Get("start-after"), string(token))
	for _, name := range b.names() {
		if name <= after && after != "" || !strings.HasPrefix(name, page.Prefix) {
			continue
		}
		if len(page.Contents) == most {
			page.IsTruncated = most > 0
			break
		}
		if o, there := b.get(name); there {
			page.Contents = append(page.Contents, content{name, o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), o.tag, len(o.body)})
		}
	}
	if page.IsTruncated {
		page.NextContinuationToken = hex.EncodeToString([]byte(page.Contents[most-1].Key))
	}
	page.KeyCount = len(page.Contents)
	return document(&page), nil
}

// document panics where its caller's type is no XML.
func document(v any) *http.Response {
	text, err := xml.Marshal(v)
	if err != nil {
		panic(err)
	}
	return answer(http.StatusOK, xml.Header+string(text))
}
