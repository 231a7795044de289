-- Takes what is free. ARGV[3]: who; ARGV[4]: at most how many; then the bells that he heard.
-- Answers now, {stream, id, count, fields} each, and the ids of those without a body.
local me, left = ARGV[3], tonumber(ARGV[4])
for i = 5, #ARGV do
  redis.call('XACK', bell, group, ARGV[i])
  redis.call('XDEL', bell, ARGV[i])
end
local taken, gone, at = {}, {}, now()
for s, key in ipairs(streams) do
  local p = left > 0 and redis.pcall('XPENDING', key, group, '-', '+', left, FREE) or {}
  if failed(p) then return 'N' end
  if #p > 0 then
    local args, counts = { 'XCLAIM', key, group, me, 0 }, {}
    for _, one in ipairs(p) do
      args[#args + 1] = one[1]
      counts[one[1]] = one[4]
    end
    for _, entry in ipairs(redis.call(unpack(args))) do
      taken[#taken + 1] = { s, entry[1], counts[entry[1]] + 1, entry[2] }
      counts[entry[1]] = nil
      left = left - 1
    end
    for id in pairs(counts) do gone[#gone + 1] = id end
  end
end
if anyfree() then ring() end
return { at, taken, gone }
