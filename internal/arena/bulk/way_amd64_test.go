package bulk

func setWay(v, s bool) { vectors, streams = v, s }
