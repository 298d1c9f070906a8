// SPDX-License-Identifier: Apache-2.0

// Empty on purpose: a package with an assembly file may declare functions without a body, see newDeviceManager.
