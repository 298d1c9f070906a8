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

// known are external programs in the image, by file name, with the pattern of their version in the file.
var known = map[string]struct {
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

// baseOf returns the external programs in the layers of an image's tarball; none for "".
func baseOf(image string) (parts []part, err error) {
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
			own, ok := known[path.Base(name)]
			if !ok {
				return nil
			}
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			found := own.part
			if v := own.version.FindSubmatch(content); v != nil {
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

func eachFile(tarball string, look func(name string, r io.Reader) error) error {
	in, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer in.Close()
	return each(in, look)
}

// each looks at the regular files of a tarball.
func each(in io.Reader, look func(name string, r io.Reader) error) error {
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeReg:
			if err := look(header.Name, r); err != nil {
				return err
			}
		}
	}
}
