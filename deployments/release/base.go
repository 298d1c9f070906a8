// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
)

// thirdParty lists the third-party programs in the image by file name, with a pattern for the version in the
// file.
var thirdParty = map[string]struct {
	part
	version *regexp.Regexp
}{
	"busybox": {
		part{name: "busybox", licence: "GPL-2.0-only"}, regexp.MustCompile(`BusyBox v([\d.]+ \([^)]*\))`),
	},
	"libc.so.6": {
		part{name: "glibc", licence: "LGPL-2.1-or-later"}, regexp.MustCompile(`GNU C Library \(([^)]*)\)`),
	},
}

// imageParts returns the third-party programs in the layers of an image. Without a tarball ("") it returns
// none.
func imageParts(image string) (parts []part, err error) {
	if image == "" {
		return nil, nil
	}
	err = eachFile(image, func(_ string, r io.Reader) error {
		blob := bufio.NewReader(r)
		if magic, _ := blob.Peek(2); string(magic) != "\x1f\x8b" {
			return nil // a manifest
		}
		layer, err := gzip.NewReader(blob)
		if err != nil {
			return err
		}
		return each(layer, func(name string, r io.Reader) error {
			program, ok := thirdParty[path.Base(name)]
			if !ok {
				return nil
			}
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			found := program.part
			if v := program.version.FindSubmatch(content); v != nil {
				found.version = string(v[1])
			}
			if !slices.Contains(parts, found) {
				parts = append(parts, found)
			}
			return nil
		})
	})
	return parts, err
}

// eachFile calls visit for each regular file of a tarball.
func eachFile(tarball string, visit func(name string, r io.Reader) error) error {
	in, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer in.Close()
	return each(in, visit)
}

// each calls visit for each regular file of a tar stream.
func each(in io.Reader, visit func(name string, r io.Reader) error) error {
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeReg:
			if err := visit(header.Name, r); err != nil {
				return err
			}
		}
	}
}
