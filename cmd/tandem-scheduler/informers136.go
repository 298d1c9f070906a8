// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package main

import "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

// nameInformers does nothing: only informers of 1.37 and later have names, for metrics.
func nameInformers(*options.Options) error { return nil }
