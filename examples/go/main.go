// Prints the Services of a node with the endpoints that get new traffic, as they change: docs/writing-a-backend.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	kpng "github.com/kpng-project/kpng/clients/go"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	options := kpng.Options{API: os.Getenv("KPNG_API"), NodeName: os.Getenv("KPNG_NODE_NAME"), OnChange: show}
	options.TLSCA, options.TokenFile = os.Getenv("KPNG_TLS_CA"), os.Getenv("KPNG_TOKEN_FILE")
	if err := kpng.Run(ctx, options); ctx.Err() == nil {
		log.Fatal(err)
	}
}

func show(_ context.Context, change kpng.Change) error {
	for _, path := range change.Touched {
		service := change.View.Services[path]
		if service == nil {
			fmt.Println(path, "deleted")
			continue
		}
		var addresses []string
		for _, endpoint := range service.Endpoints {
			if endpoint.GetUse().GetCluster() {
				addresses = append(addresses, endpoint.GetIPs().GetV4()...)
			}
		}
		fmt.Println(path, service.GetIPs().GetClusterIPs().GetV4(), "->", addresses)
	}
	return nil
}
