// Package e2e is a test binary with the end-to-end tests of sig-network; Go wants a file besides the test itself.
package e2e
