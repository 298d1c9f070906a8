// SPDX-License-Identifier: Apache-2.0

// Package history records the events of a node, and judges them by a sequential model of Tandem's promises.
package history
