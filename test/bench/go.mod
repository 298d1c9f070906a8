// Benchmarks beside other allocators: a module of its own, so that Tandem itself does not depend on them.
module github.com/tandem-k8s/tandem/test/bench

go 1.26.0

require (
	github.com/NVIDIA/go-gpuallocator v0.6.0
	github.com/tandem-k8s/tandem v0.0.0-00010101000000-000000000000
)

require (
	github.com/NVIDIA/go-nvlib v0.12.0 // indirect
	github.com/NVIDIA/go-nvml v0.13.4-0 // indirect
	github.com/google/uuid v1.6.0 // indirect
)

replace github.com/tandem-k8s/tandem => ../..
