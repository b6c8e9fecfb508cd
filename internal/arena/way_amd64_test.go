package arena

func setWay(v, s bool) { vectors, streams = v, s }
