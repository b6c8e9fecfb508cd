package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// readKey reads a private key, as `openssl genpkey -algorithm ed25519` writes one.
func readKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("-key: %s has no PEM of a private key: openssl genpkey -algorithm ed25519 -out %[1]s makes one", path)
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("-key: %s: %w", path, err)
	}
	key, ok := any.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("-key: %s is a %T: sums are signed with ed25519", path, any)
	}
	return key, nil
}

// sign writes the signature of SHA256SUMS, 64 bytes that openssl pkeyutl -verify checks.
func (r *release) sign(key ed25519.PrivateKey) error {
	sums := filepath.Join(r.out, "SHA256SUMS")
	text, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(sums+".sig", ed25519.Sign(key, text), 0o644)
}
