// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package main

import "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

// nameInformers does nothing: informers have names, for their metrics, from 1.37 on.
func nameInformers(*options.Options) error { return nil }
