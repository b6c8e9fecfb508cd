package config

import "os"

// Listen is where clients connect, and who may.
type Listen struct {
	// Absolute path of the Unix socket that engines connect to, at most 106 bytes.
	Socket string `yaml:"socket"`
	// Permissions of the sockets, in octal. Connecting takes write permission.
	Mode os.FileMode `yaml:"mode"`
	// Their group, by name or number; "" is the daemon's own.
	Group string `yaml:"group"`
	// User ids that may connect, to front ends too; [] is every user that the mode admits.
	AllowUIDs []uint32 `yaml:"allow_uids,flow" reload:"at once"`
	// User ids that may administer, besides root and the daemon's own user.
	AdminUIDs []uint32 `yaml:"admin_uids,flow" reload:"next request"`
	// Where [Redis clients](../resp.md) connect: paths of sockets and host:port; [] turns the
	// front end off.
	RESP []string `yaml:"resp,flow"`
	// File whose first line is the password of Redis clients over TCP; needed for addresses
	// that other machines reach.
	RESPPasswordFile string `yaml:"resp_password_file" reload:"next login"`
	// What becomes of a value that cannot be kept: with drop a later miss, with error an error
	// as Redis's.
	RESPFull string `yaml:"resp_full" oneof:"drop,error" reload:"new connections"`
}

// What becomes of a Redis client's value that cannot be kept.
const (
	RESPFullDrop  = "drop"  // it is dropped, and the old one with it; only clients that sent HELLO or CLIENT are told
	RESPFullError = "error" // an error, and the old one stays
)
