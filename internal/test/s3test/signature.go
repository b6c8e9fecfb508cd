package s3test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const scheme = "AWS4-HMAC-SHA256"

// Failures of credentials.
var (
	accessDenied     = &failure{http.StatusForbidden, "AccessDenied"}
	unknownKey       = &failure{http.StatusForbidden, "InvalidAccessKeyId"}
	invalidToken     = &failure{http.StatusForbidden, "InvalidToken"}
	invalidSignature = &failure{http.StatusForbidden, "SignatureDoesNotMatch"}
)

// checkSignature verifies Signature Version 4 of a request that carries it in
// its header, as the AWS reference describes it ("Create a signed AWS API
// request"). Session tokens are refused: there are none here. The time of the
// signature is not checked.
func checkSignature(r *http.Request) *failure {
	fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme+" ")
	if !ok {
		return accessDenied
	}
	auth := make(map[string]string)
	for _, field := range strings.Split(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		auth[name] = value
	}
	access, scope, _ := strings.Cut(auth["Credential"], "/")
	parts := strings.Split(scope, "/") // day, region, s3, aws4_request
	switch {
	case access != AccessKey:
		return unknownKey
	case r.Header.Get("X-Amz-Security-Token") != "":
		return invalidToken
	case len(parts) != 4:
		return accessDenied
	}
	text := strings.Join([]string{scheme, r.Header.Get("X-Amz-Date"), scope, hexSum(canonical(r, auth["SignedHeaders"]))}, "\n")
	secret := []byte("AWS4" + SecretKey)
	for _, part := range parts {
		secret = mac(secret, part)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(mac(secret, text))), []byte(auth["Signature"])) {
		return invalidSignature
	}
	return nil
}

// canonical is the text of a request that its signature covers.
func canonical(r *http.Request, signed string) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	names := strings.Split(signed, ";")
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fmt.Fprintf(&headers, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	return strings.Join([]string{r.Method, path, query, headers.String(), signed, r.Header.Get("X-Amz-Content-Sha256")}, "\n")
}

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func mac(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return h.Sum(nil)
}
