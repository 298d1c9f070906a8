//go:build !cgo

package nvidia

import "errors"

func open(string) (library, error) {
	return nil, errors.New("enter NVML: this tandem-gpu was built without a C compiler and cannot open NVIDIA's library: build it with one (CGO_ENABLED=1)")
}
