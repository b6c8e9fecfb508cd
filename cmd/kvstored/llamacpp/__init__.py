"""llama.cpp on its own: its prebuilt library, models with random weights, and a
context that computes. For the tests, the benchmarks and ``kvstored demo --engine``;
no part of the package that is installed."""
