// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package nvidia

import "fmt"

func openLibrary(string) (library, error) {
	return nil, fmt.Errorf("%w: this tandem-gpu was built without a C compiler and cannot open NVIDIA's "+
		"library: build it with one (CGO_ENABLED=1)", errNoDriver)
}
