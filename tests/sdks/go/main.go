// The SDK for Go v2, with nothing set but its environment.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	log.SetFlags(0)
	bucket, hot, fresh := os.Args[1], os.Args[2], os.Args[3]
	ctx := context.Background()
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client := s3.NewFromConfig(settings, func(options *s3.Options) { options.UsePathStyle = true })
	put := s3.PutObjectInput{Bucket: &bucket, Key: &fresh, Body: strings.NewReader("new")}
	if _, err := client.PutObject(ctx, &put); err != nil {
		log.Fatal(err)
	}
	fmt.Println(length(ctx, client, bucket, hot), length(ctx, client, bucket, fresh))
}

func length(ctx context.Context, client *s3.Client, bucket, key string) int {
	answer, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	return len(body)
}
