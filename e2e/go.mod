module github.com/kvstored/kvstored/e2e

go 1.26.0

require (
	github.com/kvstored/kvstored v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/rs/zerolog v1.35.1 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
)

replace github.com/kvstored/kvstored => ../
