-- Removes messages in whatever state. KEYS[7]: a store's records; ARGV[3]: how many; each: phase, id. Answers 1 or 0
-- each. What waits unread in a topic is others' too: the group reads on to it, into what is free, and that one ends.
local out, at, read = {}, 4, false
local function unread(key, id)
  local g = known(key)
  if not g or not later(id, g['last-delivered-id']) then return false end
  if #redis.call('XRANGE', key, id, id) == 0 then return false end
  while later(id, known(key)['last-delivered-id']) do
    local some = redis.call('XREADGROUP', 'GROUP', group, FREE, 'COUNT', 100, 'STREAMS', key, '>')
    if not some or not some[1] then break end
    local args = { 'XCLAIM', key, group, FREE, 0 }
    for _, e in ipairs(some[1][2]) do args[#args + 1] = e[1] end
    for _, word in ipairs({ 'RETRYCOUNT', 0, 'JUSTID' }) do args[#args + 1] = word end
    redis.call(unpack(args))
    read = true
  end
  return true
end
for i = 1, tonumber(ARGV[3]) do
  local phase, id = tonumber(ARGV[at]), ARGV[at + 1]
  local key = streams[phase]
  at = at + 2
  if phase == 3 then
    out[i] = redis.call('ZREM', delayed, id)
    redis.call('HDEL', bodies, id)
  elseif not key then
    out[i] = 0
  elseif kind == 's' then
    out[i] = redis.call('XDEL', key, id)
    local record = redis.call('HGET', KEYS[7], 'i' .. id)
    if record then redis.call('HDEL', KEYS[7], 'i' .. id, 'r' .. record) end
  elseif private(phase) then
    redis.call('XACK', key, group, id)
    out[i] = redis.call('XDEL', key, id)
  else
    out[i] = redis.call('XACK', key, group, id)
    if out[i] == 0 and unread(key, id) then out[i] = redis.call('XACK', key, group, id) end
  end
end
if read and anyfree() then ring() end
return out
