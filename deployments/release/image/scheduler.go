// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// packScheduler packs tandem-scheduler alone, for one or several architectures: it runs on other nodes than
// the plugins, and is larger than all of them together.
func packScheduler(programs []string, tag, tarball string, stdout io.Writer) error {
	labels, err := schedulerLabels(programs)
	if err != nil {
		return err
	}
	var images []v1.Image
	for _, program := range programs {
		image, err := schedulerImage(program, labels)
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	reference := withTag(tag, labels)
	size, digest, err := writeTarball(tarball, reference, labels, images)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s@%s\n%.1f MB to pull\n", tarball, reference, digest, float64(size)/1e6)
	return nil
}

func schedulerImage(program string, labels map[string]string) (v1.Image, error) {
	return newImage(program, v1.Config{
		Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"tandem-scheduler"}, User: "65532", Labels: labels,
	}, []file{
		{name: "etc/passwd", text: "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"},
		{name: "usr/bin/tandem-scheduler", from: program},
	})
}

func schedulerLabels(programs []string) (map[string]string, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":       "tandem-scheduler",
		"org.opencontainers.image.description": "kube-scheduler with Tandem's plugin",
		"org.opencontainers.image.source":      "https://github.com/tandem-k8s/tandem",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	return labels, ofSource(labels, programs, "make tandem-scheduler")
}
