// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes136

package main

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// nameInformers sets the name of the scheduler's informers in metrics.
func nameInformers(opts *options.Options) (err error) {
	opts.InformerName, err = cache.NewInformerName("kube-scheduler")
	if err != nil {
		return fmt.Errorf("name informers: %w", err)
	}
	return nil
}
