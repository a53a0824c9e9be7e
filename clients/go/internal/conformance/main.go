// A client for `kpng conformance protocol --report stdout`: prints each state that it has applied.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"

	kpng "github.com/kpng-project/kpng/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := kpng.Options{API: os.Getenv("KPNG_API"), NodeName: os.Getenv("KPNG_NODE_NAME"), OnState: show}
	if err := kpng.Run(ctx, options); ctx.Err() == nil {
		log.Fatal(err)
	}
}

func show(_ context.Context, view *kpng.View) error {
	services := map[string][]string{}
	for path, service := range view.Services {
		addresses := []string{}
		for _, endpoint := range service.Endpoints {
			addresses = append(append(addresses, endpoint.GetIPs().GetV4()...), endpoint.GetIPs().GetV6()...)
		}
		slices.Sort(addresses)
		services[path] = addresses
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"services": services})
}
