package resp

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// redisVersion is the version in INFO and HELLO, for clients that choose commands
// by it: the first that speaks RESP3, and the commands of that time.
const redisVersion = "6.0.0"

// Memory is what INFO says of the memory that values lie in.
type Memory struct {
	UsedBytes, CapacityBytes int64
	Policy                   string // of eviction
}

// doInfo answers INFO [section ...].
func doInfo(c *session, _ context.Context) {
	var asked []string
	for _, arg := range c.args {
		asked = append(asked, strings.ToLower(string(arg)))
	}
	all := len(asked) == 0 || slices.ContainsFunc(asked, func(s string) bool { return s == "default" || s == "all" || s == "everything" })
	var b strings.Builder
	for _, s := range c.server.sections() {
		if name, lines := s[0], s[1:]; all || slices.Contains(asked, strings.ToLower(name)) {
			fmt.Fprintf(&b, "# %s\r\n%s\r\n\r\n", name, strings.Join(lines, "\r\n"))
		}
	}
	c.out.verbatim(b.String())
}

// sections is what INFO knows: of each section the name, then its lines.
func (s *Server) sections() [][]string {
	st, mem := s.Stats(), s.o.Memory()
	line := func(name string, value any) string { return fmt.Sprint(name, ":", value) }
	return [][]string{
		{"Server", line("redis_version", redisVersion), line("redis_mode", "standalone"), line("kvstored_version", s.o.Version)},
		{"Clients", line("connected_clients", st.Connections)},
		{
			"Memory",
			line("used_memory", mem.UsedBytes), line("maxmemory", mem.CapacityBytes), line("maxmemory_policy", mem.Policy),
		},
		{"Persistence", line("loading", 0)},
		{
			"Stats",
			line("total_connections_received", st.ConnectionsTotal), line("total_commands_processed", st.Commands),
			line("total_net_input_bytes", st.BytesRead), line("total_net_output_bytes", st.BytesWritten),
			line("keyspace_hits", st.Hits), line("keyspace_misses", st.Misses),
		},
		{"Replication", line("role", "master")},
	}
}
