package disk

// Settings are the options that can change while a Tier is open: see Options.
type Settings struct {
	MinFreeBytes                int64
	HighWatermark, LowWatermark float64
}

// settings are those of the options.
func (o *Options) settings() Settings {
	return Settings{MinFreeBytes: o.MinFreeBytes, HighWatermark: o.HighWatermark, LowWatermark: o.LowWatermark}
}

// Set changes the settings of the Tier, and of each that the Keeper opens later.
func (k *Keeper) Set(to Settings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.settings = to
	k.now.Load().Set(to)
}
