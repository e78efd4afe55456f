/* A stand-in of the driver's other libraries: they load, tell their version, and do nothing. DRIVER is the version. */
#include <stdio.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return snprintf(version, size, "%s", DRIVER), 0; }
