// A server and a client that protect a connection with TCP-AO by the kernel's socket options, and ask for its counters.
// CGO_ENABLED=0 go build -o ao-go ao.go makes a static binary whose system calls go around libc.
//
// Exit status: 0 all right, 1 not, 2 the options could not be used.
//
// The next line is needed because Linux has no TCP-AO for MPTCP sockets, which Go listens with since 1.24.
//
//go:debug multipathtcp=0
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const (
	addKey  = 38
	info    = 40
	tcpAO   = 288 // struct tcp_ao_add
	infoLen = 48  // struct tcp_ao_info_opt
)

func die(code int, what string, err error) {
	fmt.Fprintf(os.Stderr, "ao-go: %s: %v\n", what, err)
	os.Exit(code)
}

// key adds a key for the peer 127.0.0.1 to a socket before it is bound or connected.
func key(send, recv byte) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		var k [tcpAO]byte
		*(*uint16)(unsafe.Pointer(&k)) = syscall.AF_INET
		copy(k[4:], []byte{127, 0, 0, 1})
		copy(k[128:], "hmac(sha256)")
		// ifindex, flags and reserved come before; then prefix, ids, maclen, keyflags, keylen.
		copy(k[202:], []byte{32, send, recv, 16, 0, 3})
		copy(k[208:], "key")
		controlErr := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, addKey, string(k[:]))
		})
		if controlErr != nil {
			return controlErr
		}
		return err
	}
}

// good is how many segments a connection has verified.
func good(conn net.Conn) (n uint64) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		die(1, "SyscallConn", err)
	}
	raw.Control(func(fd uintptr) {
		var b [infoLen]byte
		size := uint32(len(b))
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, info,
			uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			die(1, "TCP_AO_INFO", errno)
		}
		n = *(*uint64)(unsafe.Pointer(&b[8]))
	})
	return n
}

func main() {
	server := net.ListenConfig{Control: key(1, 2)}
	listener, err := server.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		die(2, "listen", err)
	}
	done := make(chan uint64)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			die(1, "accept", err)
		}
		io.Copy(conn, conn)
		done <- good(conn)
	}()
	client := net.Dialer{Control: key(2, 1), Timeout: 5 * time.Second}
	conn, err := client.Dial("tcp4", listener.Addr().String())
	if err != nil {
		die(1, "connect", err)
	}
	text, back := []byte("a question"), make([]byte, 10)
	for i := 0; i < 100; i++ {
		if _, err := conn.Write(text); err != nil {
			die(1, "write", err)
		}
		if _, err := io.ReadFull(conn, back); err != nil || string(back) != string(text) {
			die(1, "read", err)
		}
	}
	ours := good(conn)
	conn.(*net.TCPConn).CloseWrite()
	theirs := <-done
	if ours < 100 || theirs < 100 {
		die(1, "verified segments", fmt.Errorf("%d and %d", ours, theirs))
	}
	// Without a key nobody gets through.
	if _, err := net.DialTimeout("tcp4", listener.Addr().String(), 500*time.Millisecond); err == nil {
		die(1, "connect without a key", fmt.Errorf("it did"))
	}
	fmt.Println("all right")
}
