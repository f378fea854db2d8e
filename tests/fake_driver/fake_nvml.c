// A stand-in for NVML's library: one power limit, of whatever GPU is asked for by its PCI address.
// Tests set the limit, in mW, and read how often it was asked for and of which GPU.
#include <string.h>

unsigned fake_limit_mw = 700000;
int fake_questions;
char fake_bus_id[32];

int nvmlInit_v2(void) {
  return 0;
}

int nvmlShutdown(void) {
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
  fake_questions++;
  strncpy(fake_bus_id, bus_id, sizeof fake_bus_id - 1);
  *device = &fake_limit_mw;
  return 0;
}

// 3 is what NVML says of what a GPU does not support.
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
  if (device != &fake_limit_mw || !fake_limit_mw) return 3;
  *milliwatts = fake_limit_mw;
  return 0;
}
