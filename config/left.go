package config

// left are keys that there were, and what to do without each. A section stands for all of
// its keys.
var left = map[string]string{
	"listen.lm":      "lm:// is not spoken any more; take LMCache's plug-in or L2 adapter, or its Redis client at listen.resp",
	"listen.lm_open": "lm:// is not spoken any more",
}
