package client_test

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/daemon"
)

// payloadBytes is the KV of one chunk in the examples.
const payloadBytes = 64 << 10

// systemPrompt is two chunks of tokens.
func systemPrompt() []uint32 {
	tokens := make([]uint32, 512)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return tokens
}

// compute stands for the engine's prefill of one chunk.
func compute(kv []byte, tokens []uint32, chunk int) {
	for i := range kv {
		kv[i] = byte(tokens[256*chunk+i%256])
	}
}

// exampleDaemon runs a daemon of 16 MiB without a disk in this process.
func exampleDaemon() (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "kvstored-example-")
	if err != nil {
		log.Fatal(err)
	}
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "s"), ""
	cfg.CPU.Capacity, cfg.CPU.HugePages = 16<<20, config.HugePagesOff
	cfg.Disk.Capacity = 0
	d, err := daemon.New(cfg, daemon.Options{Log: zerolog.Nop()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return cfg.Listen.Socket, func() {
		cancel()
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}
