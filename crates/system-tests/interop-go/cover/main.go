// Command cover is a web site with HTTP/3: what a server with a cover looks like to strangers.
//
// The first line of output has the address. It serves one page under every path until SIGTERM.
package main

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"gramway.test/interop/internal/report"
)

var page = []byte("<!doctype html><title>Harbour news</title><p>" + strings.Repeat("Ships come and ships go. ", 80))

func main() {
	listen := flag.String("listen", "", "ADDR:PORT")
	chain := flag.String("chain", "", "PEM file with the certificate and those that lead to the root")
	key := flag.String("key", "", "PEM file")
	alpn := flag.String("alpn", "", "another protocol than HTTP/3")
	idLength := flag.Int("id-length", 8, "bytes of its connection IDs")
	retry := flag.Bool("retry", false, "have every client prove its address")
	classic := flag.Bool("classic", false, "no key exchange beyond X25519")
	flag.Parse()
	result := report.New()
	if err := run(*listen, *chain, *key, *alpn, *idLength, *retry, *classic); err != nil {
		result.Fail("%v", err)
	}
	result.End()
}

func run(listen, chain, key, alpn string, idLength int, retry, classic bool) error {
	certificate, err := tls.LoadX509KeyPair(chain, key)
	if err != nil {
		return err
	}
	settings := http3.ConfigureTLSConfig(
		&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
	)
	if alpn != "" {
		settings.NextProtos = []string{alpn}
	}
	if classic {
		settings.CurvePreferences = []tls.CurveID{tls.X25519}
	}
	socket, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	var resetKey quic.StatelessResetKey
	rand.Read(resetKey[:])
	transport := &quic.Transport{
		Conn:                socket,
		ConnectionIDLength:  idLength,
		StatelessResetKey:   &resetKey,
		VerifySourceAddress: func(net.Addr) bool { return retry },
	}
	listener, err := transport.ListenEarly(settings, &quic.Config{})
	if err != nil {
		return err
	}
	server := &http3.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "text/html")
		writer.Write(page)
	})}
	report.Print(map[string]string{"address": socket.LocalAddr().String()})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		server.Close()
		listener.Close()
	}()
	if err := server.ServeListener(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
