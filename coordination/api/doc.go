// SPDX-License-Identifier: Apache-2.0

// Package api is the protocol of the coordination socket: coordination.proto and what "make generate" makes
// of it.
package api
