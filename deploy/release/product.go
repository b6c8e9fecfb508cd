package main

import "path/filepath"

// product is a program that is handed out, with what goes with it. Paths are from the
// root of the checkout.
type product struct {
	name    string
	main    string // folder of its main package, which says of which module it is
	readme  string
	unit    string // "" and what follows: it is no daemon
	example string // of its configuration
	etc     string // where a package puts that
	scripts string // folder of a package's scripts
	manual  bool   // there are manual pages, which a test of the program writes
	about   string // one line, and more behind it
}

var products = []product{
	{
		name: "kvstored", main: "cmd/kvstored", readme: "README.md", unit: "deploy/kvstored.service",
		example: "kvstored.example.yaml", etc: "/etc/kvstored/kvstored.yaml", scripts: "deploy/package", manual: true,
		about: "KV cache sidecar for LLM inference engines\nIt keeps the KV cache of an inference engine in DRAM and on disk, beside the\nengine, and tells it in microseconds how much of a new prompt it has.",
	},
	{
		name: "kvstored-router", main: "router/cmd/kvstored-router", readme: "router/README.md", unit: "router/deploy/kvstored-router.service",
		example: "router/router.example.yaml", etc: "/etc/kvstored/router.yaml", scripts: "router/deploy/package",
		about: "Router for LLM inference engines with kvstored\nIt says which of several engines a request should go to, by what is cached where,\nand publishes the events of a kvstored over ZeroMQ.",
	},
	{
		name: "kvstored-lab", main: "lab/cmd/kvstored-lab", readme: "lab/README.md",
		about: "Replays and simulations of KV caches beside kvstored\nIt plays traces against a kvstored, and says what other sizes and policies would\nhit of them, or of what the clients of a kvstored have asked for.",
	},
}

// productOf is the product whose program a file is.
func productOf(program string) product {
	for _, p := range products {
		if p.name == filepath.Base(program) {
			return p
		}
	}
	return products[0]
}
