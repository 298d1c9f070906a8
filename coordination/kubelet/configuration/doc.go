// SPDX-License-Identifier: Apache-2.0

// Package configuration reads files of the kubelet's configuration as the kubelet does.
package configuration
