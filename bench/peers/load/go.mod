module kapsa.dev/bench/load

go 1.25
