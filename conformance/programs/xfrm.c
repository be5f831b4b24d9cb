// A client of NETLINK_XFRM without a library: asks for the counts of states and policies, and for what it may not have.
// Prints what it gets; the same on a kernel and under `sealane run`.
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd;

static void ask(int type, int flags, const void *body, int len) {
  char request[512] = {0}, answer[8192];
  struct nlmsghdr *h = (void *)request;
  h->nlmsg_len = NLMSG_LENGTH(len);
  h->nlmsg_type = type;
  h->nlmsg_flags = NLM_F_REQUEST | flags;
  h->nlmsg_seq = 42;
  memcpy(NLMSG_DATA(h), body, len);
  struct sockaddr_nl to = {.nl_family = AF_NETLINK}, from;
  if (sendto(fd, request, h->nlmsg_len, 0, (void *)&to, sizeof to) < 0) {
    perror("sendto");
    return;
  }
  struct iovec iov = {answer, sizeof answer};
  struct msghdr msg = {&from, sizeof from, &iov, 1, 0, 0, 0};
  ssize_t n = recvmsg(fd, &msg, 0);
  printf("type %d: %zd bytes from %u, name %u, flags %x:", type, n, from.nl_pid, msg.msg_namelen, msg.msg_flags);
  memset(answer + 12, 0, 4);
  for (ssize_t i = 0; i < n; i++) printf(" %02x", (unsigned char)answer[i]);
  puts("");
}

int main(void) {
  fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_XFRM);
  if (fd < 0) {
    perror("socket");
    return 1;
  }
  int on = 1;
  setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  unsigned zero = 0;
  ask(XFRM_MSG_GETSADINFO, 0, &zero, 4);
  ask(XFRM_MSG_GETSPDINFO, 0, &zero, 4);
  struct xfrm_usersa_id id = {.spi = 1, .family = AF_INET, .proto = 50};
  ask(XFRM_MSG_GETSA, 0, &id, sizeof id);
  ask(XFRM_MSG_DELSA, NLM_F_ACK, &id, sizeof id);
  ask(XFRM_MSG_MAX + 1, NLM_F_ACK, &zero, 4);
  ask(XFRM_MSG_GETSA, NLM_F_DUMP, &zero, 0);
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  printf("epoll %d\n", epoll_wait(set, &event, 1, 0));
  struct nlmsghdr h = {sizeof h, NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
  if (write(fd, &h, sizeof h) < 0) perror("write");
  printf("epoll %d\n", epoll_wait(set, &event, 1, 5000));
  return 0;
}
