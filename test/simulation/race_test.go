// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulation

func init() { raced = true }
