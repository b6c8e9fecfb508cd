package daemon

import (
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

var (
	descModelAsked  = desc("model_asked_tokens_total", "Tokens of prompts asked for, by model; a few dozen models have a label of their own.", "model")
	descModelHit    = desc("model_hit_tokens_total", "Tokens in ready prefixes, by model and by the tier they were found in.", "model", "tier")
	descModelBytes  = desc("model_hit_bytes_total", "Payload bytes of ready prefixes, by model.", "model")
	descModelStored = desc("model_stored_bytes_total", "Payload bytes committed by clients, by model.", "model")
)

func collectModels(models []server.ModelStats, counter counterFunc) {
	for i := range models {
		m := &models[i]
		counter(descModelAsked, m.AskedTokens, m.Model)
		counter(descModelBytes, m.HitBytes, m.Model)
		counter(descModelStored, m.StoredBytes, m.Model)
		for p, n := range m.HitTokens {
			counter(descModelHit, n, m.Model, tier.Place(p).String())
		}
	}
}
