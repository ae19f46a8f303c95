// A CUDA device for fake tensors in a process without a GPU: autograd asks it for streams and events.
// Load it before torch, so that its hooks are found first, and call install() after torch.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
using c10::DeviceIndex;
using c10::DeviceType;
struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  void record(void**, const c10::Stream&, DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, DeviceIndex) const noexcept override {}
  c10::Device getDevice() const override { return first; }
  c10::Device exchangeDevice(c10::Device) const override { return first; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream; }
  c10::Stream getDefaultStream(c10::Device) const override { return stream; }
  c10::Stream getNewStream(c10::Device, int) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream; }
  const c10::Device first{DeviceType::CUDA, 0};
  const c10::Stream stream{c10::Stream::DEFAULT, first};
};
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};
using HooksRegisterer =
    c10::Registerer<std::string, std::unique_ptr<at::CUDAHooksInterface>, at::CUDAHooksArgs>;
static HooksRegisterer
    hooks("CUDAHooks", c10::REGISTRY_PREFERRED, at::CUDAHooksRegistry(),
          HooksRegisterer::DefaultCreator<Hooks>);
extern "C" void install() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(new Guard);
}
