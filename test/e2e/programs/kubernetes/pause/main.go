// The process that holds the namespaces of a pod. Upstream's is in C; this one needs no C compiler.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	reap := make(chan os.Signal, 16)
	signal.Notify(reap, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-reap:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
